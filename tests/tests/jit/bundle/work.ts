interface Order {
  id: number;
  lines: number[];
}

function makeOrders(count: number): Order[] {
  const orders: Order[] = [];
  for (let id = 0; id < count; id++) orders.push({ id, lines: [id % 7, id % 11, id % 13] });
  return orders;
}

/** Quadratic: each order is compared with all of them. */
export function countSimilar(orders: Order[]): number {
  let similar = 0;
  for (const a of orders) {
    for (const b of orders) {
      if (a.lines[0] === b.lines[0] && a.lines[1] === b.lines[1]) similar++;
    }
  }
  return similar;
}

export class Report {
  constructor(private readonly orders: Order[]) {}
  total(): number {
    let sum = 0;
    for (let round = 0; round < 30; round++) sum += countSimilar(this.orders);
    return sum;
  }
}

console.log(new Report(makeOrders(2000)).total());
