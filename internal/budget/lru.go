package budget

import "container/list"

// LRU keeps the values that were used last, as long as they weigh no more than Limit
// together; the one that was used last stays in any case. Its callers hold a lock.
type LRU[T any] struct {
	Limit  int64
	weight int64
	order  list.List // of *Kept[T], the one that was used last first
}

// Kept is a value's place in an LRU. It belongs to the value, and the zero value is one that
// is not kept.
type Kept[T any] struct {
	value  T
	weight int64
	place  *list.Element
}

// Use keeps a value, as the one that was used last.
func (l *LRU[T]) Use(k *Kept[T], value T) {
	if k.place != nil {
		l.order.MoveToFront(k.place)
		return
	}
	k.value, k.place = value, l.order.PushFront(k)
	l.weight += k.weight
	l.shrink()
}

// Weigh says how much a value weighs, whether it is kept or not.
func (l *LRU[T]) Weigh(k *Kept[T], weight int64) {
	if k.place != nil {
		l.weight += weight - k.weight
	}
	k.weight = weight
	l.shrink()
}

func (l *LRU[T]) shrink() {
	for l.weight > l.Limit && l.order.Len() > 1 {
		l.drop(l.order.Back())
	}
}

func (l *LRU[T]) drop(e *list.Element) {
	var none T
	k := l.order.Remove(e).(*Kept[T])
	k.value, k.place = none, nil
	l.weight -= k.weight
}

// Clear keeps nothing any more.
func (l *LRU[T]) Clear() {
	for l.order.Len() > 0 {
		l.drop(l.order.Back())
	}
}
