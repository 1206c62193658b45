/* Ending a step in the middle, at the cost of its VM.
 *
 * A signal finds the thread somewhere. Where that is inside of mruby's interpreter nothing but the VM is half done, so the step can
 * be left for good by a jump; elsewhere (the allocator, a call of the host) it is left alone, and whoever wants it stopped asks again.
 */
#include "stop.h"

#include <ucontext.h>

_Thread_local fb_vm *volatile stop_running;

#if CAN_STOP
/* Where the thread was when the signal came. */
static uintptr_t place(const ucontext_t *context) {
#ifdef __x86_64__
  return (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#else
  return (uintptr_t)context->uc_mcontext.pc;
#endif
}

/* The interpreter's loop is one function of one object file, so what lies between it and the nearest other function of that
 * file is nothing else: no allocator, no lock of libc. Code that computes without end is there most of the time. */
static uintptr_t interpreter_end;

static void find_interpreter(void) {
  const uintptr_t begin = (uintptr_t)mrb_vm_exec;
  const uintptr_t others[] = {(uintptr_t)mrb_vm_run, (uintptr_t)mrb_top_run, (uintptr_t)mrb_funcall_with_block,
                              (uintptr_t)mrb_yield_with_class};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (others[i] > begin && (!interpreter_end || others[i] < interpreter_end)) interpreter_end = others[i];
  }
  /* Further away than any loop is long: not of one piece, so nothing is known. */
  if (interpreter_end && interpreter_end - begin > ((uintptr_t)1 << 18)) interpreter_end = 0;
}

static int in_interpreter(uintptr_t at) { return at >= (uintptr_t)mrb_vm_exec && at < interpreter_end; }

/* Leaves the step for good when the thread is where nothing but the VM itself is half done; otherwise whoever wants it
 * stopped asks again. */
static void on_stop(int number, siginfo_t *info, void *context) {
  fb_vm *vm = stop_running;
  (void)number;
  (void)info;
  if (!vm || atomic_load(&vm->unwanted) != atomic_load(&vm->serial) || !in_interpreter(place(context))) return;
  stop_running = NULL;
  siglongjmp(vm->leave, 1);
}

static void hear_once(void) {
  find_interpreter();
  struct sigaction action = {.sa_sigaction = on_stop, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER};
  sigemptyset(&action.sa_mask);
  sigaction(SIGVTALRM, &action, NULL);
}

void stop_prepare(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, hear_once);
}

void fb_stop(fb_vm *vm, unsigned serial) {
  atomic_store(&vm->unwanted, serial);
  pthread_kill(vm->thread, SIGVTALRM);
}
#else
void stop_prepare(void) {}
void fb_stop(fb_vm *vm, unsigned serial) {
  (void)vm;
  (void)serial;
}
#endif

unsigned fb_serial(fb_vm *vm) { return atomic_load(&vm->serial); }
