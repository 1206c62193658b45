/*
 * What Rust sees of mruby.
 *
 * Why a shim: mruby raises by longjmp and its values are meaningful only inside its heap. So no mrb_value ever leaves this
 * file, every entry runs protected, and what crosses is bytes: tapes (below), numbers, pointers that live until the next entry.
 *
 * Contract:
 *  1. No entry raises, jumps or unwinds. `FB_BROKEN` means that the driver itself failed, `FB_STOPPED` that the step was
 *     left in the middle: after either nothing but fb_discard may be called; open a new VM.
 *  2. A VM belongs to the thread that opened it; only fb_interrupt, fb_serial and fb_stop may be called from another one.
 *  3. host.call is a leaf: it takes bytes, gives bytes, and calls nothing of this file.
 *
 * A tape is one value: a tag, then
 *   'n' nil   't' true   'f' false
 *   'i' i64   'd' f64                    (native byte order)
 *   's' u32 length, bytes (String)       ':' the same (Symbol)
 *   '[' u32 count, values                '{' u32 count, key value ...
 *   '!' String value (class), String value (message): an exception; only into Ruby
 */
#ifndef FIREBRICK_SHIM_H
#define FIREBRICK_SHIM_H

#include <stddef.h>
#include <stdint.h>

typedef struct fb_vm fb_vm;

typedef struct {
  const uint8_t *data;
  size_t length;
} fb_bytes;

/* Answers Rt.call(op, *args) from Ruby. `args` is a tape of an Array; the answer is a tape that lives until the next call. */
typedef fb_bytes (*fb_call)(void *host, uint32_t op, fb_bytes args);

typedef struct {
  void *host;
  fb_call call;
  size_t heap_limit; /* bytes of the whole VM */
  size_t task_limit; /* bytes that one resume may add */
} fb_config;

enum {
  FB_DONE = 0,   /* the task is over: fb_out is what it gave */
  FB_WAIT = 1,   /* the task waits: fb_out is the Array [op, args ...] */
  FB_RAISED = 2, /* an exception came out: fb_out is [class, message, [backtrace ...]] */
  FB_BROKEN = 3, /* the VM cannot be used any more: fb_out may say why */
  FB_STOPPED = 4, /* nor here: fb_stop has ended the step */
};

/* One field of a Rack env. A key or value is a number of fb_intern (bytes NULL) or bytes. */
typedef struct {
  const uint8_t *key;
  const uint8_t *value;
  uint32_t key_length; /* or the number */
  uint32_t value_length;
} fb_field;

/* NULL with a reason (static text) when there is not memory enough or the library is not what its headers say. */
fb_vm *fb_open(const fb_config *config, const char **reason);
void fb_close(fb_vm *vm);
/* Gives the memory of a VM back without asking mruby: after FB_BROKEN and FB_STOPPED. */
void fb_discard(fb_vm *vm);

const char *fb_version(void);
int fb_has_hook(void);

/* The value or error of the last entry, as a tape; valid until the next entry. */
fb_bytes fb_out(fb_vm *vm);

/* Runs code outside of any task: it cannot wait. FB_DONE, FB_RAISED. */
int fb_eval(fb_vm *vm, const uint8_t *code, size_t length, const char *file);

/* FB_DONE, or FB_RAISED with ["SyntaxError", message, [line, column]]. Nothing is run. */
int fb_check(fb_vm *vm, const uint8_t *code, size_t length, const char *file);

/* A frozen String that is there for good; its number, from 0. UINT32_MAX without memory. */
uint32_t fb_intern(fb_vm *vm, const uint8_t *text, size_t length);

/* Starts `Rt.<job>(*args)` as task `slot`, which must be idle. FB_DONE, FB_WAIT, FB_BROKEN. */
int fb_start(fb_vm *vm, uint32_t slot, uint32_t job, fb_bytes args);

/* The same for a request: `Rt.respond(handler, env, more)` with the handler of this number in Rt.apps, and an env of what
 * Rt.env was given and these fields. `more` (2, else 1) tells Ruby that some fields are to become something else first. */
int fb_request(fb_vm *vm, uint32_t slot, uint32_t app, const fb_field *fields, size_t count, int more);

/* Goes on with a task that waits; `value` is what its wait gives, or an exception ('!'). */
int fb_resume(fb_vm *vm, uint32_t slot, fb_bytes value);

/* Forgets the fiber of a task that waits: the next job of this slot gets a new one. */
void fb_abandon(fb_vm *vm, uint32_t slot);

/* What one resume may add to the heap from now on, bytes. */
void fb_limit(fb_vm *vm, size_t task_limit);

/* Bytes of the heap now; live objects of the collector. */
size_t fb_heap(fb_vm *vm);
/* Collects everything: for tests and for idle times. */
void fb_collect(fb_vm *vm);

/* Ends what runs now with an exception of Rt::Interrupted as soon as the VM can be interrupted. From any thread. */
void fb_interrupt(fb_vm *vm);

/* Which step runs, or ran last. From any thread. */
unsigned fb_serial(fb_vm *vm);
/* Ends that step at the cost of the VM, wherever Ruby computes without allocating: it gives FB_STOPPED. Nothing happens when
 * another step runs by now, or when the thread is outside of mruby's interpreter just then: ask again. From any thread while
 * the one that opened the VM lives. Uses SIGVTALRM. */
void fb_stop(fb_vm *vm, unsigned serial);

#endif
