package periodic

// What the tests of package periodic_test need of the rules.
var (
	EnableRule = enableRule
	TickID     = tickID
)
