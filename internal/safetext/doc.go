// Package safetext makes texts safe to store and to show: cut at a rune, valid UTF-8,
// addresses without what may be secret.
package safetext
