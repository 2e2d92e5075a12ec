package form

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/model"
)

// Documents that hold for more than one task have no moment that a duration could count from.
var (
	noNow  time.Time
	noZone = time.UTC
)

// convert fills a document of another package with what a form says, or a form with what a
// document holds: the fields that have the same name in Go. What a form does not say, and a
// zero field of a document, stays as it is in dst. Times, which need a zone, are left to the
// caller on the way from a form.
func convert(dst, src any) {
	convertValue(reflect.ValueOf(dst).Elem(), reflect.ValueOf(src))
}

func convertValue(dst, src reflect.Value) {
	said := src.Kind() == reflect.Pointer || src.Kind() == reflect.Interface
	if said {
		if src.IsNil() {
			return
		}
		src = src.Elem()
	}
	if dst.Kind() == reflect.Pointer {
		if said || !src.IsZero() {
			dst.Set(reflect.New(dst.Type().Elem()))
			convertValue(dst.Elem(), src)
		}
		return
	}
	switch value := src.Interface().(type) {
	case time.Time:
		dst.SetString(string(timeOf(value)))
		return
	case Time:
		return
	case Value:
		if len(value) > 0 {
			dst.Set(reflect.ValueOf(json.RawMessage(value)))
		}
		return
	}
	switch {
	case dst.Type() == reflect.TypeFor[Value]():
		raw, _ := json.Marshal(src.Interface()) // what is stored is JSON
		dst.SetBytes(raw)
	case src.CanConvert(dst.Type()):
		dst.Set(src.Convert(dst.Type()))
	case dst.Kind() == reflect.Struct:
		for i := range src.NumField() {
			if to := dst.FieldByName(src.Type().Field(i).Name); to.IsValid() {
				convertValue(to, src.Field(i))
			}
		}
	case dst.Kind() == reflect.Slice && src.Len() > 0:
		dst.Set(reflect.MakeSlice(dst.Type(), src.Len(), src.Len()))
		for i := range src.Len() {
			convertValue(dst.Index(i), src.Index(i))
		}
	case dst.Kind() == reflect.Map && src.Len() > 0:
		dst.Set(reflect.MakeMap(dst.Type()))
		for key, value := range src.Seq2() {
			to := reflect.New(dst.Type().Elem()).Elem()
			convertValue(to, value)
			dst.SetMapIndex(key, to)
		}
	}
}

// Model are the options that the form says; see [ParseTime] for zone and now.
func (o *Options) Model(zone *time.Location, now time.Time) (out model.Options, err error) {
	convert(&out, o)
	if out.Retry != nil && out.Retry.Strategy == "fixed_period" { // its name in seed 000
		out.Retry.Strategy = model.RetryFixed
	}
	if c := o.Callback; c != nil && c.Security != nil && c.Security.AK+c.Security.SK != "" {
		key := callback.Key{AccessKey: c.Security.AK, Secret: c.Security.SK}
		out.Callback.Security.Keys = append([]callback.Key{key}, out.Callback.Security.Keys...)
	}
	out.ExpiresAt, err = o.ExpiresAt.at("expires_at", zone, now)
	return out, err
}

// OptionsOf are stored options as a file says them, without their secrets.
func OptionsOf(o *model.Options) *Options {
	shown := *o
	shown.Callback = secret.HideCallback(o.Callback)
	out := &Options{}
	convert(out, &shown)
	return out
}

// Fill takes from src what dst, a form of the same kind, does not say.
func Fill[T any](dst, src *T) { fill(reflect.ValueOf(dst).Elem(), reflect.ValueOf(src).Elem()) }

func fill(dst, src reflect.Value) {
	for _, f := range fieldsOf(dst.Type()) {
		to, from := dst.FieldByIndex(f.index), src.FieldByIndex(f.index)
		inner := to.Type()
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case inner.Kind() != reflect.Struct || f.whole || to.Kind() == reflect.Pointer && to.IsNil():
			if to.IsZero() {
				to.Set(from)
			}
		case to.Kind() == reflect.Struct:
			fill(to, from)
		case !from.IsNil():
			own := reflect.New(inner) // what others share stays as it is
			own.Elem().Set(to.Elem())
			fill(own.Elem(), from.Elem())
			to.Set(own)
		}
	}
}
