// Package simnet is a network in memory for memberlist, on which whole clusters run inside a testing/synctest bubble.
package simnet
