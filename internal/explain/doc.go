// Package explain says in plain words why a task is where it is and what would happen
// next. It is pure: it asks the same rules of package model that the workers ask, so an
// explanation can not disagree with what they do.
package explain
