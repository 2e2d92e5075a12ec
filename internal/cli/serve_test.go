package cli

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/fakeissuer"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// serving starts `serve` and returns the address of its API.
func (s *session) serving(args ...string) (url string, errs *lockedBuffer, stop func() result) {
	s.t.Helper()
	_, errs, stop = s.start(append([]string{"serve", "--bind", "127.0.0.1:0"}, args...)...)
	at := regexp.MustCompile(`(?:the API is|completions are accepted|health is) at (https?://[^/\s]+)`)
	s.eventually("the API", func() bool {
		found := at.FindStringSubmatch(errs.String())
		if found != nil {
			url = found[1]
		}
		return found != nil
	})
	return url, errs, stop
}

// request sends a request to an API, and returns the status and the text of the answer.
func (s *session) request(method, url, token, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(s.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	return res.StatusCode, string(text)
}

func TestServeAnswersRequestsAndRunsTasks(t *testing.T) {
	s := newSession(t)
	url, errs, stop := s.serving("--allow-exec")
	require.Contains(t, errs.String(), "no access token exists")
	status, text := s.request(http.MethodPost, url+"/api/v1/tasks", "", `{"type": "exec", "key": "k", "args": {"argv": ["true"]}}`)
	require.Equal(t, http.StatusCreated, status, text)
	_, text = s.request(http.MethodGet, url+"/api/v1/tasks/-/exec/k/wait", "", "")
	require.Contains(t, text, `"status":"Success"`)
	require.Contains(t, errs.String(), "the periodic rules, the flows and the plans")

	ended := make(chan struct{})
	go func() { // it waits, or comes too late
		defer close(ended)
		res, err := http.Post(url+"/api/v1/pull/fetch", "application/json", strings.NewReader(`{"worker_id": "w", "types": ["none"], "wait": "50s"}`)) //nolint:noctx // the server ends it
		if err == nil {
			_ = res.Body.Close()
		}
	}()
	r := stop()
	require.Equal(t, ExitOK, r.code, r.stderr)
	<-ended // long before its 50 s are over: a stop does not wait for those who wait
}

func TestServeIsOpenToItsMachineOnlyUntilThereIsAToken(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	s.fails(ExitRefused, []string{"there is no token", "mscheduler token create"}, "serve", "--bind", "0.0.0.0:0", "--completion-url", "http://127.0.0.1")
	s.fails(ExitUsage, []string{"--bind"}, "serve", "--bind", "nowhere.invalid:x")
	s.fails(ExitUsage, []string{"--tls-key"}, "serve", "--tls-cert", "x")
	s.fails(ExitUsage, []string{"--tls-cert: reading the certificate", "nowhere.pem"}, "serve", "--tls-cert", "nowhere.pem", "--tls-key", "x")
	s.fails(ExitUsage, []string{"--completion-addr"}, "serve", "--completion-addr", ":0")
	token := strings.TrimSpace(s.ok("token", "create", "ops", "--role", "viewer").stdout)
	url, errs, _ := s.serving("--no-worker", "--no-engines")
	require.NotContains(t, errs.String(), "no access token exists")
	status, _ := s.request(http.MethodGet, url+"/api/v1/tasks", "", "")
	require.Equal(t, http.StatusUnauthorized, status)
	status, text := s.request(http.MethodGet, url+"/api/v1/tasks", token, "")
	require.Equal(t, http.StatusOK, status, text)
	status, text = s.request(http.MethodPost, url+"/api/v1/tasks", token, `{"type": "mail"}`)
	require.Equal(t, http.StatusForbidden, status, text)
	s.fails(ExitUsage, []string{"--bind is", "--completion-url"}, "serve", "--bind", "0.0.0.0:0")
}

// certificate writes a new certificate of that serial number and its key.
func certificate(t *testing.T, dir string, serial int64) (cert, key string) {
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	require.NoError(t, err)
	bits, err := x509.MarshalECPrivateKey(secret)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: bits}), 0o600))
	at := time.Now().Add(time.Duration(serial) * time.Second) // a file system may have coarse times
	require.NoError(t, os.Chtimes(cert, at, at))
	return cert, key
}

func TestServeReadsANewCertificateWithoutARestart(t *testing.T) {
	s := newSession(t)
	cert, key := certificate(t, s.dir, 1)
	url, _, _ := s.serving("--no-worker", "--no-engines", "--tls-cert", cert, "--tls-key", key)
	serial := func() int64 {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // the serial number is what counts
		c, err := d.DialContext(context.Background(), "tcp", strings.TrimPrefix(url, "https://"))
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		return c.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	require.EqualValues(t, 1, serial())
	certificate(t, s.dir, 2)
	require.EqualValues(t, 2, serial())
	require.NoError(t, os.WriteFile(key, []byte("broken"), 0o600))
	require.EqualValues(t, 2, serial(), "the old one serves while the new one cannot be read")
}

func TestServeAcceptsTokensOfAnIdentityProvider(t *testing.T) {
	s := newSession(t)
	provider, err := fakeissuer.New()
	require.NoError(t, err)
	keys := filepath.Join(s.dir, "keys.json")
	require.NoError(t, os.WriteFile(keys, provider.KeySet(), 0o600))
	s.env.OIDCIssuer, s.env.OIDCRoles, s.env.OIDCAudience = fakeissuer.URL, "viewer=staff, admin=root", "another"
	url, errs, _ := s.serving("--no-worker", "--no-engines", "--bind", "0.0.0.0:0", "--oidc-jwks", keys,
		"--oidc-audience", fakeissuer.Audience, "--oidc-role-claim", "groups", "--oidc-tenants-claim", "tenants")
	require.NotContains(t, errs.String(), "no access token exists", "not even while there is none")
	url = "http://127.0.0.1" + url[strings.LastIndex(url, ":"):]
	status, _ := s.request(http.MethodGet, url+"/api/v1/tasks", "", "")
	require.Equal(t, http.StatusUnauthorized, status)
	staff, err := provider.Token(map[string]any{"groups": []string{"staff"}, "tenants": []string{"shop"}})
	require.NoError(t, err)
	status, text := s.request(http.MethodGet, url+"/api/v1/tasks?tenant=shop", staff, "")
	require.Equal(t, http.StatusOK, status, text)
	status, text = s.request(http.MethodGet, url+"/api/v1/tasks?tenant=other", staff, "")
	require.Equal(t, http.StatusForbidden, status, text)

	all := []string{"serve", "--oidc-issuer", "https://id.example.org", "--oidc-jwks", keys, "--oidc-audience", "a", "--oidc-roles", "admin=root"}
	s.env.OIDCIssuer, s.env.OIDCRoles, s.env.OIDCAudience = "", "", ""
	s.fails(ExitUsage, []string{"--oidc-jwks is required", "--oidc-audience is required", "--oidc-roles has 0 values"}, all[:3]...)
	s.fails(ExitUsage, []string{"--oidc-issuer is required"}, "serve", "--oidc-audience", "a")
	s.fails(ExitUsage, []string{`--oidc-jwks is "http://id.example.org/keys"; want an https URL`}, append(all, "--oidc-jwks", "http://id.example.org/keys")...)
	s.fails(ExitUsage, []string{`--oidc-roles is "king"`}, append(all, "--oidc-roles", "king=root2")...)
	s.fails(ExitUsage, []string{`--oidc-roles has "root"; want ROLE=VALUE`}, append(all, "--oidc-roles", "root")...)
	s.fails(ExitUsage, []string{`--oidc-roles maps "root" to admin and viewer`}, append(all, "--oidc-roles", "viewer=root")...)
}

func TestServeCanLeaveOutEachOfItsParts(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	statuses := func(args ...string) (api, callbacks, health int) {
		url, _, stop := s.serving(append(args, "--no-engines")...)
		defer func() { require.Equal(t, ExitOK, stop().code) }()
		api, _ = s.request(http.MethodGet, url+"/api/v1/tasks", "", "")
		callbacks, text := s.request(http.MethodPost, url+"/api/v1/callbacks/x", "", "")
		if !strings.Contains(text, `"unknown"`) { // nobody has looked at the token
			callbacks = 0
		}
		health, _ = s.request(http.MethodGet, url+"/readyz", "", "")
		return api, callbacks, health
	}
	api, callbacks, health := statuses("--no-worker")
	require.Equal(t, []int{200, 404, 200}, []int{api, callbacks, health})
	api, callbacks, health = statuses("--no-worker", "--no-callbacks")
	require.Equal(t, []int{200, 0, 200}, []int{api, callbacks, health})
	api, callbacks, health = statuses("--no-worker", "--no-api", "--bind", "0.0.0.0:0") // nothing that needs a token
	require.Equal(t, []int{404, 404, 200}, []int{api, callbacks, health})
	api, callbacks, health = statuses("--no-api", "--no-callbacks") // a worker and its health
	require.Equal(t, []int{404, 0, 200}, []int{api, callbacks, health})
}

// says is what a limited server sends to a connection until it ends it.
func says(t *testing.T, h *http.Server, request string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- h.Serve(listener) }()
	defer func() {
		require.NoError(t, h.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	}()
	c, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	text, err := io.ReadAll(c)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	return string(text)
}

func TestServeLimitsHeadersAndSlowClients(t *testing.T) {
	server := func() *http.Server {
		return limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	}
	h := server()
	for _, limit := range []time.Duration{h.ReadHeaderTimeout, h.ReadTimeout, h.WriteTimeout, h.IdleTimeout} {
		require.Positive(t, limit)
		require.LessOrEqual(t, limit, 2*time.Minute)
	}
	require.Less(t, h.ReadHeaderTimeout, h.ReadTimeout)
	const start = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
	require.Contains(t, says(t, h, start+"X: "+strings.Repeat("x", 60_000)+"\r\n\r\n"), "HTTP/1.1 204")
	// As much as the server reads of a header, so that it leaves nothing unread and its answer arrives.
	most := 64<<10 + 4<<10
	require.Contains(t, says(t, server(), start+"X: "+strings.Repeat("x", most-len(start)-3)), "HTTP/1.1 431")
	h = server()
	h.ReadHeaderTimeout = 50 * time.Millisecond // of the ten seconds
	require.Empty(t, says(t, h, start), "the end of the header never comes")
}

func TestAProcessThatServesOutlivesItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		said, ended := false, false
		go func() {
			asked := func(context.Context) error { return nil } // a worker that somebody asked to stop
			err := together(ctx, staying(asked, func() { said = true }), func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
			assert.NoError(t, err)
			ended = true
		}()
		synctest.Wait()
		require.True(t, said)
		require.False(t, ended)
		stop()
		synctest.Wait()
		require.True(t, ended)
	})
	broken := errors.New("it cannot go on")
	err := staying(func(context.Context) error { return broken }, func() { t.Error("nobody asked it to stop") })(t.Context())
	require.ErrorIs(t, err, broken)
}

// Workers hear of it with their next heartbeats, within 30 seconds.
func TestAWorkerThatIsAskedToStopEndsWorkAndLeavesServe(t *testing.T) {
	if os.Getenv("MSCHEDULER_TEST_LONG") == "" {
		t.Skip("it takes half a minute: make long has it")
	}
	s := newSession(t)
	s.ok("db", "migrate")
	_, worked, _ := s.worker()
	url, served, stop := s.serving("--worker-id", "served")
	s.ok("worker", "drain", "w1", "--stop")
	s.ok("worker", "drain", "served", "--stop")
	require.Eventually(t, func() bool {
		return strings.Contains(worked.String(), "stopped: 0 executions") && strings.Contains(served.String(), "worker served was asked to stop and has stopped")
	}, testdb.Patience, 50*time.Millisecond)
	status, text := s.request(http.MethodGet, url+"/api/v1/workers", "", "")
	require.Equal(t, http.StatusOK, status, text)
	require.NotContains(t, served.String(), "stopped: ")
	require.Equal(t, ExitOK, stop().code)
}
