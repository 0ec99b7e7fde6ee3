// Package watch tells that files may have changed, in whichever way they are replaced.
//
// Words. A file is watched by the directories that its name leads through: the one it is in, and where there are links on the way, the one
// that each of them is in. So a file that is written over, renamed over, deleted and made anew is noticed, and so is a link that
// is switched: that of a mounted config map is a directory further up, not the file.
//
// Not guaranteed: that anything has changed when something is told, nor that all changes are told: some file systems, such as those over a network,
// tell nothing. So compare what is read, and look from time to time without being told.
package watch

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// Watcher watches files. Made by [New]; Watch must not be called by several goroutines at once.
type Watcher struct {
	fs      *fsnotify.Watcher
	armed   map[string]os.FileInfo // the directories, as they were when their watch began
	changed chan struct{}
	done    chan struct{}
}

// New makes a watcher that watches nothing yet. The error is the system's, which may have no more watches to give.
func New() (*Watcher, error) {
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &Watcher{fs: fs, armed: map[string]os.FileInfo{}, changed: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w, nil
}

// Changed has an element when something has changed since it was last read. It is never closed.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Close ends the watch.
func (w *Watcher) Close() error {
	err := w.fs.Close()
	<-w.done
	return err
}

func (w *Watcher) run() {
	defer close(w.done)
	for {
		select {
		case _, ok := <-w.fs.Events:
			if !ok {
				return
			}
		case _, ok := <-w.fs.Errors: // events were lost
			if !ok {
				return
			}
		}
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

// Watch watches these files and directories, which need not exist, and no others. Call it again after a change: directories may have been replaced and
// links may lead elsewhere now. What changes while it runs may be missed, so read the files afterwards. The error is the first of a
// directory that cannot be watched; the others are.
func (w *Watcher) Watch(paths []string) error {
	want := map[string]bool{}
	for _, path := range paths {
		for _, dir := range directories(path) {
			want[dir] = true
		}
	}
	watched := map[string]bool{}
	for _, dir := range w.fs.WatchList() {
		if watched[dir] = true; !want[dir] {
			w.drop(dir)
		}
	}
	var first error
	for dir := range want {
		info, err := os.Stat(dir)
		if err == nil {
			if watched[dir] && os.SameFile(info, w.armed[dir]) {
				continue
			}
			if watched[dir] { // what was watched has another name now
				w.drop(dir)
			}
			w.armed[dir] = info
			err = w.fs.Add(dir)
		}
		if err != nil && !os.IsNotExist(err) && first == nil {
			first = err
		}
	}
	return first
}

func (w *Watcher) drop(dir string) {
	_ = w.fs.Remove(dir) // it may have gone by itself
	delete(w.armed, dir)
}

// mostLinks is how many links may lead to a file, so that a circle of them ends.
const mostLinks = 40

// directories are those in which a change can make another file of the path, or give it another content; of what does not exist, those on the way
// to it as far as they do.
func directories(path string) (dirs []string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	volume := filepath.VolumeName(path)
	root := volume + string(filepath.Separator)
	at, rest := root, split(path[len(volume):])
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0])
		info, err := os.Lstat(next)
		switch {
		case err != nil:
			return append(dirs, at)
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(next)
			if links++; err != nil || links > mostLinks {
				return append(dirs, at)
			}
			dirs = append(dirs, at)
			if filepath.IsAbs(target) {
				volume = filepath.VolumeName(target)
				at, target = volume+string(filepath.Separator), target[len(volume):]
			}
			rest = append(split(target), rest[1:]...)
		case len(rest) == 1 && info.IsDir(): // it may be replaced, and files in it
			return append(dirs, at, next)
		case len(rest) == 1:
			return append(dirs, at)
		default:
			at, rest = next, rest[1:]
		}
	}
	return append(dirs, at)
}

// split are the elements of a path without those that mean nothing. ".." stays, as it is to be followed from where a link has led.
func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return os.IsPathSeparator(uint8(r)) && r < 128 })
}
