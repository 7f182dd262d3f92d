#ifndef COOKS_H
#define COOKS_H

/* Hands an order to the cooks. `serve` runs on the main queue with its number. */
void take_order(int number, void (^serve)(int number));

/* Waits until all orders were cooked. */
void close_kitchen(void);

#endif
