// Command board reads a Grafana board by Grafana's own schema, and prints its expressions, one on a line.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	plugins.RegisterDefaultPlugins()
	var board dashboard.Dashboard
	if err := board.UnmarshalJSONStrict(text); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := board.Validate(); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var found struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return err
	}
	for _, p := range found.Panels {
		for _, t := range p.Targets {
			fmt.Println(strings.ReplaceAll(t.Expr, "$__rate_interval", "5m"))
		}
	}
	return nil
}
