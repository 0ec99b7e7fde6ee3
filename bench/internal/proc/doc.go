// Package proc runs the servers that benchmarks ask: on free ports of the loopback interface, each with a log file, and ended by their
// process id.
//
// # Guarantees
//
// [Process.Stop] returns when the process is gone: asked with SIGTERM, killed 15 seconds later. On Linux the kernel kills a process whose
// program ends without having stopped it. A process is in a group of its own, so that an interrupt from the terminal reaches only the
// program, which then stops it in good order.
//
// # Not guaranteed
//
// That a port which was free is still free when the server binds it: then starting fails, with what the server said.
package proc
