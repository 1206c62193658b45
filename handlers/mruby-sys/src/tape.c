/* Values to tapes and back; the format is in shim.h. */
#include "vm.h"

#include <stdlib.h>

/* Deeper values are refused in both directions. */
#define MAX_DEPTH 100

static void too_large(mrb_state *mrb) {
  mrb_raise(mrb, mrb_exc_get_id(mrb, mrb_intern_lit(mrb, "NoMemoryError")),
            "a value for the server is larger than mruby.heap: it contains the same Strings many times");
}

void tape_grow(mrb_state *mrb, buffer *to, size_t length) {
  /* A tape has a copy of each element, where the heap has many references to one: it would take any amount of memory. */
  size_t most = ((fb_vm *)mrb->ud)->config.heap_limit;
  if (length > most || to->length > most - length) too_large(mrb);
  size_t capacity = to->capacity ? to->capacity : 1024;
  while (capacity - to->length < length) capacity *= 2;
  uint8_t *bigger = realloc(to->data, capacity);
  if (!bigger) mrb_raise(mrb, mrb_exc_get_id(mrb, mrb_intern_lit(mrb, "NoMemoryError")), "no memory for a value");
  to->data = bigger;
  to->capacity = capacity;
}

typedef struct {
  buffer *to;
  int depth;
} pairs;

static int put_pair(mrb_state *mrb, mrb_value key, mrb_value value, void *user) {
  pairs *p = user;
  tape_value(mrb, p->to, key, p->depth);
  tape_value(mrb, p->to, value, p->depth);
  return 0;
}

void tape_value(mrb_state *mrb, buffer *to, mrb_value value, int depth) {
  if (depth > MAX_DEPTH) mrb_raise(mrb, E_ARGUMENT_ERROR, "value is nested too deeply");
  switch (mrb_type(value)) {
  case MRB_TT_FALSE:
    tape_tag(mrb, to, mrb_nil_p(value) ? 'n' : 'f');
    return;
  case MRB_TT_TRUE:
    tape_tag(mrb, to, 't');
    return;
  case MRB_TT_INTEGER: {
    int64_t number = mrb_integer(value);
    tape_tag(mrb, to, 'i');
    tape_put(mrb, to, &number, sizeof number);
    return;
  }
  case MRB_TT_FLOAT: {
    double number = mrb_float(value);
    tape_tag(mrb, to, 'd');
    tape_put(mrb, to, &number, sizeof number);
    return;
  }
  case MRB_TT_STRING:
    tape_text(mrb, to, 's', RSTRING_PTR(value), RSTRING_LEN(value));
    return;
  case MRB_TT_SYMBOL: {
    mrb_int length;
    const char *name = mrb_sym_name_len(mrb, mrb_symbol(value), &length);
    tape_text(mrb, to, ':', name, length);
    return;
  }
  case MRB_TT_ARRAY:
    tape_counted(mrb, to, '[', RARRAY_LEN(value));
    for (mrb_int i = 0; i < RARRAY_LEN(value); i++) tape_value(mrb, to, RARRAY_PTR(value)[i], depth + 1);
    return;
  case MRB_TT_HASH: {
    pairs p = {to, depth + 1};
    tape_counted(mrb, to, '{', mrb_hash_size(mrb, value));
    mrb_hash_foreach(mrb, mrb_hash_ptr(value), put_pair, &p);
    return;
  }
  default:
    mrb_raisef(mrb, E_TYPE_ERROR, "%C cannot be passed to the server", mrb_obj_class(mrb, value));
  }
}

typedef struct {
  const uint8_t *at, *end;
} reader;

static void take(mrb_state *mrb, reader *from, void *into, size_t length) {
  if ((size_t)(from->end - from->at) < length) mrb_raise(mrb, E_RUNTIME_ERROR, "a tape is incomplete");
  memcpy(into, from->at, length);
  from->at += length;
}

static const char *take_text(mrb_state *mrb, reader *from, uint32_t *length) {
  take(mrb, from, length, sizeof *length);
  if ((size_t)(from->end - from->at) < *length) mrb_raise(mrb, E_RUNTIME_ERROR, "a tape is incomplete");
  const char *text = (const char *)from->at;
  from->at += *length;
  return text;
}

static mrb_value take_value(mrb_state *mrb, reader *from, int depth) {
  char tag;
  uint32_t length;
  if (depth > MAX_DEPTH) mrb_raise(mrb, E_RUNTIME_ERROR, "value is nested too deeply");
  take(mrb, from, &tag, 1);
  switch (tag) {
  case 'n': return mrb_nil_value();
  case 't': return mrb_true_value();
  case 'f': return mrb_false_value();
  case 'i': {
    int64_t number;
    take(mrb, from, &number, sizeof number);
    return mrb_int_value(mrb, (mrb_int)number);
  }
  case 'd': {
    double number;
    take(mrb, from, &number, sizeof number);
    return mrb_float_value(mrb, number);
  }
  case 's': {
    const char *text = take_text(mrb, from, &length);
    return mrb_str_new(mrb, text, length);
  }
  case ':': {
    const char *text = take_text(mrb, from, &length);
    return mrb_symbol_value(mrb_intern(mrb, text, length));
  }
  case '[': {
    take(mrb, from, &length, sizeof length);
    mrb_value array = mrb_ary_new(mrb);
    int arena = mrb_gc_arena_save(mrb);
    for (uint32_t i = 0; i < length; i++) {
      mrb_ary_push(mrb, array, take_value(mrb, from, depth + 1));
      mrb_gc_arena_restore(mrb, arena);
    }
    return array;
  }
  case '{': {
    take(mrb, from, &length, sizeof length);
    mrb_value hash = mrb_hash_new(mrb);
    int arena = mrb_gc_arena_save(mrb);
    for (uint32_t i = 0; i < length; i++) {
      mrb_value key = take_value(mrb, from, depth + 1);
      mrb_value value = take_value(mrb, from, depth + 1);
      mrb_hash_set(mrb, hash, key, value);
      mrb_gc_arena_restore(mrb, arena);
    }
    return hash;
  }
  case '!': {
    mrb_value name = take_value(mrb, from, depth + 1);
    mrb_value message = take_value(mrb, from, depth + 1);
    return mrb_funcall(mrb, mrb_obj_value(mrb_module_get(mrb, "Rt")), "fault", 2, name, message);
  }
  default: mrb_raise(mrb, E_RUNTIME_ERROR, "a tape holds an unknown tag");
  }
  return mrb_nil_value();
}

mrb_value tape_take(mrb_state *mrb, fb_bytes bytes) {
  reader from = {bytes.data, bytes.data + bytes.length};
  return take_value(mrb, &from, 0);
}
