// Cooks: orders go to a concurrent queue, three plates are there, and all share one stove.
//
// It is C, because Swift's own DispatchQueue calls libdispatch from inside the dyld shared cache, where nothing is seen.
#include "cooks.h"

#include <dispatch/dispatch.h>
#include <math.h>
#include <os/lock.h>

static os_unfair_lock stove = OS_UNFAIR_LOCK_INIT;
static dispatch_group_t orders;
static dispatch_queue_t cooks;
static dispatch_semaphore_t plates;

static void cook(int number) {
    volatile double taste = number;
    os_unfair_lock_lock(&stove);
    for (int i = 0; i < 200000; i++) {
        taste = sin(taste) + 1;
    }
    os_unfair_lock_unlock(&stove);
}

void take_order(int number, void (^serve)(int number)) {
    static dispatch_once_t once;
    dispatch_once(&once, ^{
      orders = dispatch_group_create();
      cooks = dispatch_queue_create("cooks", DISPATCH_QUEUE_CONCURRENT);
      plates = dispatch_semaphore_create(3);
    });
    dispatch_group_async(orders, cooks, ^{
      dispatch_semaphore_wait(plates, DISPATCH_TIME_FOREVER);
      cook(number);
      dispatch_semaphore_signal(plates);
      dispatch_async(dispatch_get_main_queue(), ^{
        serve(number);
      });
    });
}

void close_kitchen(void) {
    if (orders) {
        dispatch_group_wait(orders, DISPATCH_TIME_FOREVER);
    }
}
