package cli

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// certificates reads a certificate and its key from files, again when one has changed. While the new ones
// cannot be read, or do not belong together, the old ones serve.
type certificates struct {
	cert, key string

	mu       sync.Mutex
	loaded   *tls.Certificate
	modified [2]time.Time
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
	if c.loaded != nil {
		return c.loaded, nil
	}
	return nil, fmt.Errorf("reading the certificate: %w", err)
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
