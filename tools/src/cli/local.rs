//! Commands that start programs of this machine, or look into them: they exist on Linux.

mod ab;
mod machine_arguments;
mod record;
mod recording_arguments;
pub(crate) mod top;

use clap::Subcommand;

pub(crate) use ab::AbArgs;
pub(crate) use machine_arguments::{DemoArgs, DoctorArgs, ProbesArgs, WorkerArgs};
pub(crate) use record::{AttachArgs, ProcessArg, RecordArgs};
pub(crate) use recording_arguments::{
    ClockArg, DumpArgs, DumpSignal, LogArgs, Period, SystraceArg,
};
pub(crate) use top::TopArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum LocalCommand {
    Record(RecordArgs),
    Attach(AttachArgs),
    Top(TopArgs),
    Ab(AbArgs),
    Doctor(DoctorArgs),
    Probes(ProbesArgs),
    Demo(DemoArgs),
    #[command(hide = true)]
    DemoWorker(WorkerArgs),
}
