// Package keytable maps keys to small records that hold no pointers: state and key lie side by side in large blocks that the garbage
// collector does not look into.
//
// # Shape
//
// A record is the caller's struct T, a word of the table's own, and the bytes of the key. Records lie in chunks and never move, so a
// pointer to one stays good while the key is in the table. An index of segments says where they are: 512 slots of 8 bytes, each the upper
// half of the key's hash and the place of the record. A full segment is split in two (extendible hashing), so growth never costs more
// than that, and the directory of segments is copied when it doubles.
//
// The hash is seeded at random in each table: nobody outside can choose keys that collide.
//
// Memory goes back by chunks: one whose records are all free goes to the garbage collector, which keeps it for who still points to a record in it, and its
// memory is used for nothing else until then. Nearly empty segments are put together. A table made with NewIn asks a budget before it takes memory.
//
// # Concurrency
//
// Find takes no lock and may run beside anything. It may miss a key that is just being moved within the index, so whoever does not find
// a key asks Add, which is sure. Add, Delete and Free are serialised by a lock of the table.
//
// A record that was freed is given to another key. So that somebody who found it before does not change it then, Find also returns the last word
// of the record, loaded before the key was compared: a compare-and-swap from that word succeeds only if the word has not changed since. The
// caller sees to it that it never has the same value for two keys, with a version in it, or because it only grows.
package keytable
