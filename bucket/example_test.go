package bucket_test

import (
	"fmt"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

func ExampleBucket() {
	p, err := bucket.NewParams(bucket.Per(100, time.Minute), 20)
	if err != nil {
		fmt.Println(err)
		return
	}
	b := bucket.New(p)
	now := int64(0) // in a program: int64(time.Since(epoch)), which is monotonic
	fmt.Println(b.Take(now, 18).Remaining)
	r := b.Take(now, 5)
	fmt.Println(r.OK, r.Remaining, r.RetryAfter, r.ResetAfter)
	now += int64(r.RetryAfter)
	fmt.Println(b.Take(now, 5).OK)
	fmt.Println(b.Take(now, 21).RetryAfter == bucket.Never)
	// Output:
	// 2
	// false 2 1.8s 10.8s
	// true
	// true
}

func ExampleParseRate() {
	for _, s := range []string{"100/min", "5r/m", "5/1m30s", "0.5/s", "1/3years"} {
		r, err := bucket.ParseRate(s)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%d per %v, or %s\n", r.Count, r.Per, r)
	}
	// Output:
	// 100 per 1m0s, or 100/min
	// 5 per 1m0s, or 5/min
	// 5 per 1m30s, or 5/90s
	// bucket: malformed rate "0.5/s": "0.5" is not a whole number; lengthen the duration instead (0.5/s is 1/2s)
	// bucket: rate out of range: 1/3year is slower than 1/year
}

func ExampleTable() {
	p, _ := bucket.NewParams(bucket.Per(1, time.Second), 3)
	t := bucket.NewTable(p, 1000)
	fmt.Println(t.Take("alice", 0, 3).OK, t.Take("alice", 0, 1).OK, t.Take("bob", 0, 1).OK)
	fmt.Println(t.Len(), t.Sweep(int64(time.Second), 100), t.Len()) // bob is full again
	// Output:
	// true false true
	// 2 1 1
}
