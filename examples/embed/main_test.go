package main

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

func TestSixthRequestIsRefused(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	api, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.Per(5, 24*time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	h := limited(api)
	for i, want := range []int{200, 200, 200, 200, 200, 429} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/?user=ada", nil))
		if w.Code != want {
			t.Errorf("request %d: status %d, want %d", i+1, w.Code, want)
		}
	}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil)); w.Code != 400 {
		t.Errorf("without a user: status %d, want 400", w.Code)
	}
}
