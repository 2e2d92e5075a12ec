// Package cli is the command line of the binary mscheduler, apart from the process it
// runs in: [Run] takes arguments, streams and environment and returns an exit code, so
// that tests run every command as a user does.
//
//	run.go        the process's side: streams, exit codes, errors as a user reads them
//	root.go       the tree of commands and the flags they share
//	settings.go   where the values of flags come from; checkconfig.go shows and checks them
//	loglevel.go   the logger, whose level follows the configuration file
//	database.go   which database is meant, and the connection to it
//	devfile.go    the address file of a dev server
//	output.go     tables and JSON;  times.go: times as people read them
//	flow*.go      the commands about flows; package flowdraw draws their graphs
//	terminal.go   what others wrote, as it may go to a terminal
//	confirm.go    asking before many tasks change
//
// and one file for each command. The command demo is package internal/demo.
//
// Results go to stdout, everything else to stderr, so that -o json is always one JSON
// value that a program can read.
package cli
