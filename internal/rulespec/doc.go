// Package rulespec is what lies between the definition of a periodic rule and its document:
// checks, defaults, sealed secrets, and the way back.
//
//	schedule.Spec ──Seal──▶ Spec with sealed secrets ──Build──▶ schedule.Rule ──Of──▶ Spec
//
// Everything is pure but for the random bytes of a sealed secret.
package rulespec
