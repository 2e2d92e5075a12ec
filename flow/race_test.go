//go:build race

package flow

const withRace = true
