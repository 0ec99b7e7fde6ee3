//go:build !unix

package main

import "os"

func ownAs(*os.File, string) error { return nil }
