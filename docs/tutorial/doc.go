// Command tutorial is the program that docs/tutorial.md builds: a service that sends mail with
// mscheduler.
package main
