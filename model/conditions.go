package model

// Conditions say which tasks a worker takes (seed 000), beside their type. Each field is
// a list of which the task must have one; empty = any. The zero value takes everything.
type Conditions struct {
	Tenants    []string `bson:"tenants,omitempty" json:"tenants,omitempty"` // [NoTenant] = those without one
	Categories []string `bson:"categories,omitempty" json:"categories,omitempty"`
	Creators   []string `bson:"creators,omitempty" json:"creators,omitempty"`
}
