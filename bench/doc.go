// Package bench measures Jatah beside what a service would use otherwise, in one run on one machine.
//
// It is a module of its own: the peers stay out of the go.mod of whoever embeds a node. There is nothing in it to
// import; run cmd/all. README.md says how, and what each suite measures.
package bench
