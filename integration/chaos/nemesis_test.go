//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/promises"
)

// nemesis causes faults, drawn from a seed. Several may be under way at once.
type nemesis struct {
	w     *world
	draw  *rand.Rand
	kinds []fault
	going sync.WaitGroup

	server chan struct{} // holds a token while nothing is wrong with the servers
	mayNot atomic.Bool   // ask the primary to step down
}

// fault is one kind of fault. It draws what it needs, and returns what it does, which takes its time; nil = it
// cannot be done now.
type fault struct {
	name   string
	weight int
	begin  func() func(context.Context) error
}

func newNemesis(w *world, seed uint64) *nemesis {
	n := &nemesis{w: w, draw: rand.New(rand.NewPCG(seed, 0)), server: make(chan struct{}, 1)}
	n.server <- struct{}{}
	n.kinds = []fault{
		{"kill", 4, n.kill},
		{"freeze", 4, n.freeze},
		{"clock step", 4, n.clockStep},
	}
	for _, t := range troubles {
		n.kinds = append(n.kinds, fault{t.name, 2, func() func(context.Context) error { return n.trouble(t) }})
	}
	if w.server.PID() != 0 {
		n.kinds = append(n.kinds, fault{"server kill", 2, n.killServer}, fault{"server freeze", 1, n.freezeServer})
	}
	if w.embedded {
		n.kinds = append(n.kinds, fault{"disk full", 2, n.fillDisk})
	}
	if w.server.PID() == 0 && w.members.set != "" {
		n.kinds = append(n.kinds, fault{"primary steps down", 2, n.stepDown})
	}
	if len(w.pids) > 0 {
		n.kinds = append(n.kinds, fault{"server freeze", 2, n.freezeOther})
		if os.Getenv(restartVariable) != "" {
			n.kinds = append(n.kinds, fault{"server kill", 2, n.killOther})
		}
	}
	return n
}

func (n *nemesis) between(from, to time.Duration) time.Duration {
	return from + time.Duration(n.draw.Int64N(int64(to-from)))
}

// rage causes faults until ctx ends, and then ends them.
func (n *nemesis) rage(ctx context.Context) {
	weights := 0
	for _, f := range n.kinds {
		weights += f.weight
	}
	for clock.Pause(ctx, n.between(100*time.Millisecond, 2*time.Second)) {
		at := n.draw.IntN(weights)
		for _, f := range n.kinds {
			if at -= f.weight; at >= 0 {
				continue
			}
			if do := f.begin(); do != nil {
				n.w.count(f.name)
				n.going.Go(func() {
					if err := do(ctx); err != nil {
						n.w.violated("", "%s: %v", f.name, err)
					}
				})
			}
			break
		}
	}
	n.going.Wait()
}

// victim is mostly a worker.
func (n *nemesis) victim() *process {
	p := n.w.processes[n.draw.IntN(len(n.w.processes))]
	if !p.role.Worker {
		p = n.w.processes[n.draw.IntN(len(n.w.processes))]
	}
	return p
}

func (n *nemesis) kill() func(context.Context) error {
	p, later, same := n.victim(), n.between(0, 4*time.Second), n.draw.IntN(2) == 0
	if !p.take() {
		return nil
	}
	n.w.note(p.role.Name, "is killed, for %v", later)
	return func(ctx context.Context) error { return p.kill(ctx, later, same) }
}

// freeze lasts mostly for longer than a lease.
func (n *nemesis) freeze() func(context.Context) error {
	p, lasts := n.victim(), n.between(promises.Lease/2, 3*promises.Lease)
	if !p.take() {
		return nil
	}
	n.w.note(p.role.Name, "is frozen, for %v", lasts)
	return func(ctx context.Context) error { return p.freeze(ctx, lasts) }
}

// clockStep prefers a process that cannot reach the servers well: only its clocks tell it when its leases end.
func (n *nemesis) clockStep() func(context.Context) error {
	p, by := n.victim(), n.between(-time.Hour, time.Hour)
	for range n.w.processes {
		if p.net.troubled() {
			break
		}
		p = n.victim()
	}
	if !p.take() {
		return nil
	}
	n.w.note(p.role.Name, "has its clock set by %v", by)
	return func(context.Context) error {
		defer p.release()
		return p.setClock(by)
	}
}

func (n *nemesis) trouble(t trouble) func(context.Context) error {
	p, lasts, hears := n.victim(), n.between(time.Second, 3*promises.Lease), n.draw.IntN(2) == 0
	if !p.net.begin(t) {
		return nil
	}
	n.w.note(p.role.Name, "%s, for %v; connections that it had then break: %v", t.name, lasts, hears)
	return func(ctx context.Context) error {
		clock.Pause(ctx, lasts)
		p.net.mend(hears)
		return nil
	}
}

// onServer does something to a server, if nothing is wrong with any.
func (n *nemesis) onServer(do func(ctx context.Context) error, format string, values ...any) func(context.Context) error {
	select {
	case <-n.server:
	default:
		return nil
	}
	n.w.note("server", format, values...)
	return func(ctx context.Context) error {
		defer func() { n.server <- struct{}{} }()
		return do(ctx)
	}
}

func (n *nemesis) killServer() func(context.Context) error {
	later := n.between(0, 5*time.Second)
	return n.onServer(func(ctx context.Context) error {
		if err := syscall.Kill(n.w.server.PID(), syscall.SIGKILL); err != nil {
			return err
		}
		clock.Pause(ctx, later)
		return n.w.server.Restart(context.WithoutCancel(ctx))
	}, "is killed, for %v", later)
}

func (n *nemesis) freezeServer() func(context.Context) error {
	return n.freezeOne(n.w.server.PID)
}

func (n *nemesis) freezeOther() func(context.Context) error {
	i := n.draw.IntN(len(n.w.pids))
	return n.freezeOne(func() int { return n.w.pids[i] })
}

// freezeOne freezes a server, whose process id is read once nobody else restarts it.
func (n *nemesis) freezeOne(pid func() int) func(context.Context) error {
	lasts := n.between(500*time.Millisecond, 2*promises.Lease)
	return n.onServer(func(ctx context.Context) error {
		id := pid()
		n.w.note("server", "process %d is frozen, for %v", id, lasts)
		if err := syscall.Kill(id, syscall.SIGSTOP); err != nil {
			return err
		}
		clock.Pause(ctx, lasts)
		return syscall.Kill(id, syscall.SIGCONT)
	}, "is to be frozen")
}

// fillDisk leaves the embedded server without room.
func (n *nemesis) fillDisk() func(context.Context) error {
	lasts := n.between(time.Second, 2*promises.Lease)
	return n.onServer(func(ctx context.Context) error {
		if err := syscall.Kill(n.w.server.PID(), diskFull); err != nil {
			return err
		}
		clock.Pause(ctx, lasts)
		return syscall.Kill(n.w.server.PID(), diskRoom)
	}, "has no room on its disk, for %v", lasts)
}

// stepDown asks the primary to step down for a while. Who may not asks once.
func (n *nemesis) stepDown() func(context.Context) error {
	if n.mayNot.Load() {
		return nil
	}
	return n.onServer(func(ctx context.Context) error {
		err := n.w.db.Client().Database("admin").RunCommand(ctx, bson.D{
			{Key: "replSetStepDown", Value: 10}, {Key: "secondaryCatchUpPeriodSecs", Value: 5}, {Key: "force", Value: true},
		}).Err()
		var refused mongo.CommandError
		if errors.As(err, &refused) && slices.Contains(mayNever, refused.Code) {
			n.mayNot.Store(true)
			n.w.cannot("primary steps down", err)
			return nil
		} else if err != nil { // connections break when a primary steps down, and it may find nobody to succeed it
			n.w.note("server", "on stepping down: %v", err)
		}
		clock.Pause(ctx, 15*time.Second)
		return nil
	}, "is asked to step down")
}

// mayNever are the codes of errors that come again whenever it is asked: Unauthorized, CommandNotFound,
// NoReplicationEnabled, NotImplemented.
var mayNever = []int32{13, 59, 76, 238}

// killOther kills a server of others, and starts it again by their command.
func (n *nemesis) killOther() func(context.Context) error {
	i, later := n.draw.IntN(len(n.w.pids)), n.between(0, 10*time.Second)
	return n.onServer(func(ctx context.Context) error {
		n.w.note("server", "process %d is killed, for %v", n.w.pids[i], later)
		if err := syscall.Kill(n.w.pids[i], syscall.SIGKILL); err != nil {
			return err
		}
		clock.Pause(ctx, later)
		cmd := exec.CommandContext(context.WithoutCancel(ctx), "sh", "-c", os.Getenv(restartVariable))
		cmd.Env = append(os.Environ(), fmt.Sprintf("N=%d", i+1))
		out, err := cmd.Output()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		pid, numErr := strconv.Atoi(lines[len(lines)-1])
		if err = errors.Join(err, numErr); err == nil {
			n.w.pids[i] = pid
		}
		return err
	}, "is to be killed")
}
