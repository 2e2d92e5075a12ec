// Package container starts MongoDB in a container. It is a package of its own, so that
// only tests that want a container carry testcontainers-go; package mstest does.
package container
