//! What the mapping and the trace file call by the same numbers: checked when this is built, so that neither
//! is translated.

use stackbeat_core::shm::layout::{drops, node_kind};
use stackbeat_core::shm::methods::Runtime;
use stackbeat_proto::v1::NodeKind;
use stackbeat_proto::v1::drops::Cause;
use stackbeat_proto::v1::methods;

const _: () = {
    assert!(node_kind::NATIVE == NodeKind::Native as u32);
    assert!(node_kind::ROOT == NodeKind::Root as u32);
    assert!(node_kind::TRUNCATED == NodeKind::Truncated as u32);
    assert!(node_kind::LEAF_PC == NodeKind::LeafPc as u32);
    assert!(node_kind::MANAGED == NodeKind::Managed as u32);
    assert!(node_kind::MANAGED_INTERPRETED == NodeKind::ManagedInterpreted as u32);
    assert!(node_kind::MANAGED_INLINED == NodeKind::ManagedInlined as u32);
    assert!(node_kind::AWAITING == NodeKind::Awaiting as u32);
    assert!(node_kind::MANAGED_AWAITING == NodeKind::ManagedAwaiting as u32);

    assert!(Runtime::Other as i32 == methods::Runtime::Other as i32);
    assert!(Runtime::CPython as i32 == methods::Runtime::Cpython as i32);
    assert!(Runtime::Ruby as i32 == methods::Runtime::Ruby as i32);

    assert!(drops::BUFFER_FULL == Cause::BufferFull as usize);
    assert!(drops::OVERWRITTEN == Cause::Overwritten as usize);
    assert!(drops::TABLE_FULL == Cause::TableFull as usize);
    assert!(drops::TRUNCATED_DEPTH == Cause::TruncatedDepth as usize);
    assert!(drops::TRUNCATED_UNWIND == Cause::TruncatedUnwind as usize);
    assert!(drops::FORCED_OVER_BUDGET == Cause::ForcedOverBudget as usize);
    assert!(drops::REENTRANT == Cause::Reentrant as usize);
    assert!(drops::SIGNAL_MISSED == Cause::SignalMissed as usize);
    assert!(drops::WAITERS_FULL == Cause::WaitersFull as usize);
    assert!(drops::WAIT_LEFT_OUT == Cause::WaitLeftOut as usize);
    assert!(drops::METHOD_TABLE_FULL == Cause::MethodTableFull as usize);
    assert!(drops::COUNT > Cause::MethodTableFull as usize);
};
