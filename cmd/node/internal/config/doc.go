// Package config reads what a standalone node is told: a YAML file with the
// files of limits_dir, the environment and flags, in that order, the later beating the earlier.
//
// Words. A field is one thing that can be set; it has one path
// ("cluster.sync_interval"), one variable (JATAH_CLUSTER_SYNC_INTERVAL) and,
// mostly, one flag, all in one table. A layer is one of the three sources. A
// place is where a value was written: file, line and column, or the name of a
// variable or flag.
//
// Guarantees. It is all or nothing: a source with one mistake yields no
// configuration. Every mistake is reported, not only the first, each with its
// place and what to do. Nothing is guessed: unknown fields and variables,
// keys given twice, values of another type, aliases and a second document are
// refused. A limit of a later layer replaces the limit of that name as a
// whole; other limits stay. A list (join) is replaced as a whole. A secret
// never appears in a message. [Merge] does no input or output.
//
// Not guaranteed: that the addresses can be bound or reached; only starting a
// node shows that.
package config
