/* What the parts of the shim share. Rust sees shim.h only.
 *
 * memory.c limits memory and time, tape.c converts values, methods.c has the methods of Rt, source.c evaluates code, tasks.c runs
 * steps, shapes.c caches envs, stop.c stops endless steps, vm.c opens and closes VMs.
 */
#ifndef FIREBRICK_VM_H
#define FIREBRICK_VM_H

#include "shapes.h"
#include "shim.h"

#include <mruby.h>
#include <mruby/array.h>
#include <mruby/error.h>
#include <mruby/hash.h>
#include <mruby/proc.h>
#include <mruby/string.h>
#include <mruby/value.h>
#include <mruby/variable.h>
#include <mruby/version.h>

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#if MRUBY_RELEASE_NO < 30100 || MRUBY_RELEASE_NO >= 40100
#error "mruby 3.1 to 4.0 is needed"
#endif

typedef struct {
  uint8_t *data;
  size_t length, capacity;
} buffer;

/* Header of each block of memory that mruby has, so that a broken VM can be freed without mruby. */
typedef struct block {
  struct block *next, *previous;
  size_t size;         /* with this header; header and padding keep the block aligned for any type */
  size_t padding;
} block;

struct fb_vm {
  mrb_state *mrb;
  block blocks;           /* head of the ring of all blocks */
  pthread_t thread;       /* that opened the VM */
  atomic_uint serial;     /* of the current or last step */
  atomic_uint unwanted;   /* the step that is to be stopped */
  sigjmp_buf leave;       /* out of the current step */
  fb_config config;
  size_t first_allocation;
  size_t heap;         /* bytes that mruby holds */
  size_t ceiling;      /* most that `heap` may reach during this step */
  atomic_int interrupted; /* number of allocations that are still to fail; with the hook: whether to raise */
  buffer out;
  mrb_value roots;     /* a registered Array of everything the collector must keep */
  mrb_value fibers;    /* slot => Fiber */
  mrb_value interned;
  mrb_value marker;    /* yielded by a task that waits */
  mrb_value module;    /* Rt */
  mrb_value apps;      /* number => handler */
  mrb_value request;   /* handler, env and kind of a request that is passed to its task */
  mrb_value template;  /* every env starts as a copy of it; nil before Rt.env */
  struct RClass *interrupted_class;
  shapes shapes;       /* of envs */
};

/* memory.c: opens a state that allocates from the VM; tasks are limited, the driver is not. */
mrb_state *memory_open(fb_vm *vm);
void memory_watch(fb_vm *vm); /* installs the debug hook, if the library has one */
void memory_for_task(fb_vm *vm);
void memory_for_driver(fb_vm *vm);
void memory_discard(fb_vm *vm);

/* tape.c: writes values to a buffer and reads them from a tape. All of these raise on failure. */
void tape_grow(mrb_state *mrb, buffer *to, size_t length);
void tape_value(mrb_state *mrb, buffer *to, mrb_value value, int depth);
mrb_value tape_take(mrb_state *mrb, fb_bytes bytes);

/* Inline, because every response is written with these. */
static inline void tape_put(mrb_state *mrb, buffer *to, const void *data, size_t length) {
  if (to->capacity - to->length < length) tape_grow(mrb, to, length);
  if (length) memcpy(to->data + to->length, data, length);
  to->length += length;
}

static inline void tape_tag(mrb_state *mrb, buffer *to, char tag) { tape_put(mrb, to, &tag, 1); }

static inline void tape_counted(mrb_state *mrb, buffer *to, char tag, size_t count) {
  if (count > UINT32_MAX) mrb_raise(mrb, E_ARGUMENT_ERROR, "value is too large");
  uint32_t narrow = (uint32_t)count;
  tape_tag(mrb, to, tag);
  tape_put(mrb, to, &narrow, sizeof narrow);
}

static inline void tape_text(mrb_state *mrb, buffer *to, char tag, const char *text, size_t length) {
  tape_counted(mrb, to, tag, length);
  tape_put(mrb, to, text, length);
}

/* methods.c */
void methods_define(mrb_state *mrb, struct RClass *rt);

/* vm.c: runs `body` protected and restores the arena. An exception is written to `out`. */
int vm_enter(fb_vm *vm, mrb_protect_error_func *body, void *user, mrb_value *result);
mrb_value vm_interned(mrb_state *mrb, fb_vm *vm, uint32_t number);

#endif
