#include "shapes.h"

#include <mruby/array.h>
#include <mruby/hash.h>
#include <mruby/string.h>
#include <mruby/value.h>

/* How mruby 3.1 to 4.0 keep entries: in the order of their keys, at the beginning of the table or in front of its index. None of
 * these Hashes has ever lost a key, so that there are no gaps. */
struct hash_entry {
  mrb_value key, value;
};
struct hash_table {
  struct hash_entry *entries;
};

static struct hash_entry *entries(mrb_value hash) {
  struct RHash *h = mrb_hash_ptr(hash);
  return h->flags & MRB_HASH_HT ? h->hsh.ht->entries : h->hsh.ea;
}

/* Where a shape is looked for. Different ones that meet there push each other out. */
static size_t slot_of(const fb_field *fields, size_t count) {
  uint32_t mixed = (uint32_t)count;
  for (size_t i = 0; i < count; i++) mixed = (mixed ^ fields[i].key_length) * 0x9e3779b1u;
  return (mixed >> 16) % SHAPES;
}

const shape *shapes_find(const shapes *known, const fb_field *fields, size_t count) {
  const shape *found = &known->shapes[slot_of(fields, count)];
  if (count == 0 || found->count != count) return NULL;
  for (size_t i = 0; i < count; i++) {
    if (fields[i].key || fields[i].key_length != found->keys[i]) return NULL;
  }
  return found;
}

mrb_value shapes_copy(mrb_state *mrb, const shapes *known, const shape *of) {
  return mrb_hash_dup(mrb, RARRAY_PTR(known->hashes)[of - known->shapes]);
}

void shape_put(mrb_value hash, uint32_t place, mrb_value value) { entries(hash)[place].value = value; }

void shape_filled(mrb_state *mrb, mrb_value hash) { mrb_write_barrier(mrb, mrb_basic_ptr(hash)); }

/* Where a key's value is; the number of entries when it is not there. */
static uint32_t place_of(mrb_state *mrb, mrb_value hash, mrb_value key) {
  uint32_t size = (uint32_t)mrb_hash_size(mrb, hash), place = 0;
  const struct hash_entry *all = entries(hash);
  while (place < size && !(mrb_string_p(all[place].key) && mrb_str_equal(mrb, all[place].key, key))) place++;
  return place;
}

void shapes_learn(mrb_state *mrb, shapes *known, const fb_field *fields, size_t count, mrb_value hash,
                  mrb_value (*key)(mrb_state *, uint32_t number)) {
  if (count == 0 || count > SHAPE_KEYS) return;
  for (size_t i = 0; i < count; i++) {
    if (fields[i].key) return;
  }
  size_t slot = slot_of(fields, count);
  shape *learned = &known->shapes[slot];
  learned->count = 0;
  mrb_value copy = mrb_hash_dup(mrb, hash);
  uint32_t size = (uint32_t)mrb_hash_size(mrb, copy);
  for (size_t i = 0; i < count; i++) {
    learned->keys[i] = fields[i].key_length;
    learned->places[i] = place_of(mrb, copy, key(mrb, fields[i].key_length));
    if (learned->places[i] == size) return;
    shape_put(copy, learned->places[i], mrb_nil_value());
  }
  mrb_ary_set(mrb, known->hashes, (mrb_int)slot, copy);
  learned->count = (uint32_t)count;
}
