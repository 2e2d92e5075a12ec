package cli

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// certificates reads a certificate and its key from files, again when one has changed. While the new ones
// cannot be read, or do not belong together, the old ones serve.
type certificates struct {
	cert, key string
	log       zerolog.Logger

	mu       sync.Mutex
	loaded   *tls.Certificate
	modified [2]time.Time
	failed   bool // to read them, the last time
}

// readCertificates reads them for the first time.
func readCertificates(cert, key string, log zerolog.Logger) (*certificates, error) {
	c := &certificates{cert: cert, key: key, log: log}
	_, err := c.get()
	return c, err
}

func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get() },
	}
}

func (c *certificates) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := c.times()
	if err == nil && (c.loaded == nil || now != c.modified) {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(c.cert, c.key); err == nil {
			c.loaded, c.modified = &pair, now
		}
	}
	if c.loaded == nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	if failed := err != nil; failed && !c.failed {
		c.log.Error().Err(err).Msg("could not read the new certificate; the old one serves")
	}
	c.failed = err != nil
	return c.loaded, nil
}

// times are when the files were changed last.
func (c *certificates) times() (out [2]time.Time, err error) {
	for i, name := range []string{c.cert, c.key} {
		info, err := os.Stat(name)
		if err != nil {
			return out, err
		}
		out[i] = info.ModTime()
	}
	return out, nil
}
