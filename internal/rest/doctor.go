package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/doctor"
	"github.com/mscheduler/mscheduler/internal/failure"
	"github.com/mscheduler/mscheduler/internal/view"
)

const (
	// doctorAge is how old an examination may be that is answered: somebody who asks all the time costs no more.
	doctorAge = 10 * time.Second
	// doctorTime bounds an examination; what was not looked at by then has failed.
	doctorTime = 20 * time.Second
)

// doctorAnswer is an examination of the deployment.
type doctorAnswer struct {
	Body struct {
		At      string           `json:"examined_at" format:"date-time"`
		OK      bool             `json:"ok" doc:"no check failed; some may warn"`
		Checks  []doctor.Finding `json:"checks"`
		Control controlView      `json:"control"`
	}
}

// controlView is the control document: what every process that works reads each second.
type controlView struct {
	Signal  int64 `json:"signal" doc:"rises with every signal, such as of a cancel"`
	Types   int64 `json:"types" doc:"rises with every change of a type's settings"`
	Limited bool  `json:"limited" doc:"limits have been used"`
}

// examined is the last examination. turn is held by the request that examines.
type examined struct {
	turn turns
	at   clock.Instant
	last *doctorAnswer
}

func (s *API) addDoctor() {
	add(s, rule{access.Operator, everyTenant}, among("stats", op("examine", http.MethodGet, "/doctor", "Examine the deployment",
		"What `mscheduler doctor` checks: the server, the schema and its indexes, change streams, the clock of the API's machine, workers, engines, tasks that wait too long. Each check that warns or fails says what to do. Nothing is written, so the privileges to write are not tried. An examination of the last ten seconds is answered again.")), s.examine)
}

func (s *API) examine(ctx context.Context, _ *struct{}) (out *doctorAnswer, err error) {
	err = s.examined.turn.within(ctx, func() (err error) {
		out, err = s.examineNow(ctx)
		return err
	})
	return out, err
}

func (s *API) examineNow(ctx context.Context) (*doctorAnswer, error) {
	e, local := &s.examined, s.store.Local()
	if e.last != nil && e.at.Since(local) < doctorAge {
		return e.last, nil
	}
	call, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	found := doctor.Examine(call, doctor.Config{Store: s.store, Database: "of the server", Server: "the database", Machine: "the server's machine", Text: s.checkText})
	if err := ctx.Err(); err != nil { // what it says is about the request
		return nil, err
	}
	fails, _ := found.Count()
	out := &doctorAnswer{}
	out.Body.OK, out.Body.Checks = fails == 0, found.Findings
	now, err := s.store.ServerTime(ctx)
	if err != nil {
		return nil, err
	}
	control, err := s.store.Control.Read(ctx)
	if err != nil {
		return nil, err
	}
	out.Body.At, out.Body.Control = view.Time(now), controlView{control.Signal, control.Types, control.Limited}
	e.last, e.at = out, clock.Read(local)
	return out, nil
}

// checkText is an error that a check has met. Texts of the database stay in the log, as those of [API.problem].
func (s *API) checkText(err error) string {
	if !failure.OfDatabase(err) {
		return err.Error()
	}
	s.config.Logger.Warn().Err(err).Msg("a check of the deployment failed")
	return "the database answers with an error; see the server's log"
}
