// Package floor is what the machine allows: the least that any limiter of many keys has to do for a decision, and nothing else.
//
// A seeded hash of the key, a look into an open-addressing table whose slots hold the state itself, a comparison of the key, one
// compare-and-swap on its credit. No clock, no refill, no growth, no deletion, no context, no answer but yes or no. It limits
// nothing in earnest: it is the measure that real limiters are held against.
//
// # Guarantees
//
//   - Slots are 16 bytes and free of pointers; keys lie in an arena, with two bytes for their length.
//   - A decision takes no lock and allocates nothing. New keys take a lock.
//   - Safe for any number of goroutines.
package floor
