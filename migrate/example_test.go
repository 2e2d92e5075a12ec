package migrate_test

import (
	"context"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/migrate"
)

// A deployment step migrates, and says what it found.
func Example() {
	ctx, cfg := context.Background(), migrate.Config{Database: testdb.Example()}
	before, err := migrate.Status(ctx, cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	after, err := migrate.Up(ctx, cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("version %d, current: %v; then current: %v\n", before.Version, before.Current, after.Current)
	// Output: version 0, current: false; then current: true
}
