//go:build !linux

package storage

import bolt "go.etcd.io/bbolt"

func forgetPages(*bolt.DB) {}
