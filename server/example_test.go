package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/server"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// serve serves the pages of a service, and below /scheduler the API.
func serve(db *mongo.Database, h *http.Server) (*server.Server, error) {
	api, err := server.New(server.Config{Database: db, Mount: "/scheduler"})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/scheduler/", api)
	h.Handler = mux
	h.RegisterOnShutdown(api.Stop) // requests that wait for a task end then
	return api, nil
}

// Without a token, only health answers.
func ExampleServer() {
	h := &http.Server{}
	api, err := serve(testdb.Example(), h)
	if err != nil {
		panic(err)
	}
	s := httptest.NewServer(h.Handler)
	defer s.Close()
	for _, path := range []string{"/scheduler/livez", "/scheduler/readyz", "/scheduler/api/v1/tasks"} {
		res, err := http.Get(s.URL + path)
		if err != nil {
			panic(err)
		}
		fmt.Println(path, res.StatusCode)
		_ = res.Body.Close()
	}
	api.Stop()
	// Output:
	// /scheduler/livez 200
	// /scheduler/readyz 200
	// /scheduler/api/v1/tasks 401
}
