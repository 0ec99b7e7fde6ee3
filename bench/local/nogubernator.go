//go:build nogubernator

package local

// gubernatorLibrary is left out: a build with this tag takes minutes less. So CI does.
func gubernatorLibrary() []peer { return nil }
