// Package httpcall is what every HTTP call of the product has in common: which addresses
// it may not reach, how much of an answer is kept, and when a target that is busy wants to
// be asked again. The http task type and callbacks are made with it.
package httpcall
