// Package embedded is a MongoDB-compatible server in the process, for machines
// that have none: development, tests and one small machine. The official driver
// talks to it over a socket, so all code above runs as it does on MongoDB.
package embedded
