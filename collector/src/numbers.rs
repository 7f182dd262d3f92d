//! What the mapping and the trace file call by the same numbers: checked when this is built, so that neither is translated.

use stackbeat_core::shm::layout::{loss, node_kind};
use stackbeat_proto::v1::NodeKind;
use stackbeat_proto::v1::loss::Cause;

const _: () = {
    assert!(node_kind::NATIVE == NodeKind::Native as u32);
    assert!(node_kind::ROOT == NodeKind::Root as u32);
    assert!(node_kind::TRUNCATED == NodeKind::Truncated as u32);
    assert!(node_kind::LEAF_PC == NodeKind::LeafPc as u32);

    assert!(loss::BUFFER_FULL == Cause::BufferFull as usize);
    assert!(loss::OVERWRITTEN == Cause::Overwritten as usize);
    assert!(loss::TABLE_FULL == Cause::TableFull as usize);
    assert!(loss::TRUNCATED_DEPTH == Cause::TruncatedDepth as usize);
    assert!(loss::TRUNCATED_UNWIND == Cause::TruncatedUnwind as usize);
    assert!(loss::FORCED_OVER_BUDGET == Cause::ForcedOverBudget as usize);
    assert!(loss::REENTRANT == Cause::Reentrant as usize);
    assert!(loss::SIGNAL_MISSED == Cause::SignalMissed as usize);
    assert!(loss::WAITERS_FULL == Cause::WaitersFull as usize);
    assert!(loss::WAIT_LEFT_OUT == Cause::WaitLeftOut as usize);
    assert!(loss::COUNT > Cause::NoAddressSpace as usize);
};
