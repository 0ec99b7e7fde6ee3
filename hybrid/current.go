package hybrid

// Current is the definition as it is now, which is replaced and never changed: it must not be changed by the caller either, and
// another pointer says that the limit was defined anew.
func (l *Limit) Current() *Spec { return l.def.Load() }
