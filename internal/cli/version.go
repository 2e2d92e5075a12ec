package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Version of this release; the linker may set it (-X). Without that it is the version
// the Go tool recorded.
var Version = ""

func version() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.result(map[string]any{
				"version": version(), "schema": store.SchemaVersion, "time_zones": calendar.ZonesVersion(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
			}, fmt.Sprintf("mscheduler %s (schema %d, time zones %s, %s, %s/%s)\n", version(), store.SchemaVersion, calendar.ZonesVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH))
		},
	}
}
