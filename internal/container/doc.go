// Package container starts MongoDB in a container, for package mstest and the scenarios. It alone
// knows testcontainers-go.
package container
