package dashboard

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"strings"
)

// downloadPage is how many documents a file asks the API for at a time. Each may have results and checkpoints of a
// megabyte.
const downloadPage = 100

// download writes all of a list that the query selects, page by page, as CSV or as JSON lines. An error after the first
// page cuts the connection, so that half a file never looks like a whole one.
func (d *Dashboard) download(w http.ResponseWriter, r *http.Request) {
	v := &visit{d: d, w: w, r: r}
	name, form, _ := strings.Cut(r.PathValue("list"), ".")
	t, ok := tables[name]
	path := t.pathTo(r.URL.Query())
	if !ok || path == "" && t.whole == nil || form != "csv" && form != "jsonl" {
		v.fail(v.nothingHere())
		return
	}
	if err := v.identify(); err != nil {
		v.fail(err)
		return
	}
	q := v.asked(t, r.URL.Query(), downloadPage)
	first := func() (document, error) { return v.get(path, q) }
	if t.whole != nil {
		t.field = "rows"
		first = func() (document, error) {
			rows := t.whole(v)
			return document{"rows": rows}, v.err
		}
	}
	doc, err := first()
	if err != nil {
		v.fail(err)
		return
	}
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+"."+form+`"`)
	write := linesTo(w)
	w.Header().Set("Content-Type", "application/jsonl")
	if form == "csv" {
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		write = tableTo(w, t.columns)
	}
	c := http.NewResponseController(w)
	for {
		_ = c.SetWriteDeadline(d.clock.Now().Add(liveTimeout)) // of each page: all of them may take longer than one answer may
		if write(t.kept(r.URL.Query(), list(doc[t.field]))) != nil {
			return // nobody takes it
		}
		next := text(doc["next"])
		if next == "" {
			return
		}
		q.Set("page_token", next)
		if doc, err = v.get(path, q); err != nil {
			d.config.Logger.Warn().Err(err).Str("list", name).Msg("a download was cut off")
			panic(http.ErrAbortHandler)
		}
	}
}

func linesTo(w http.ResponseWriter) func([]any) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	return func(docs []any) error {
		for _, doc := range docs {
			if err := out.Encode(doc); err != nil {
				return err
			}
		}
		return nil
	}
}

func tableTo(w http.ResponseWriter, columns []string) func([]any) error {
	out := csv.NewWriter(w)
	_ = out.Write(columns) // Flush tells
	return func(docs []any) error {
		for _, doc := range docs {
			row := make([]string, len(columns))
			for i, c := range columns {
				row[i] = cell(at(doc, c))
			}
			_ = out.Write(row)
		}
		out.Flush()
		return out.Error()
	}
}

// cell is a value in a CSV file. A program for tables reads what begins so as a formula, which could be anybody's: a quote
// before it makes it text.
func cell(v any) string {
	var s string
	switch v.(type) {
	case map[string]any, []any:
		s = written(v, "")
	default:
		s = text(v)
	}
	if _, isNumber := v.(json.Number); !isNumber && s != "" && strings.ContainsRune("=+-@;\t\r\n", rune(s[0])) {
		return "'" + s
	}
	return s
}

// at is the value of a document at a path such as options.timeout_ms.
func at(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		v = object(v)[name]
	}
	return v
}
