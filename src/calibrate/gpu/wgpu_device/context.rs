//! A wgpu device with what every operation needs of it: buffers, kernels, errors, a clock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::super::device::DeviceError;

/// Kernels by the module that holds them.
const MODULES: [(&str, &[&str]); 5] = [
    (include_str!("kernels/fill.wgsl"), &["fill_elements", "fill_words"]),
    (include_str!("kernels/copy.wgsl"), &["copy", "nothing"]),
    (include_str!("kernels/gemm.wgsl"), &["tiled", "narrow"]),
    (include_str!("kernels/kv_cache_write.wgsl"), &["kv_cache_write"]),
    (include_str!("kernels/attention.wgsl"), &["attention", "combine"]),
];

pub(super) struct Context {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    /// Elements are f16, else f32.
    pub f16: bool,
    pub limits: wgpu::Limits,
    timestamps: bool,
    pipelines: HashMap<&'static str, wgpu::ComputePipeline>,
    /// What wgpu reported since it was last asked for.
    errors: Arc<Mutex<Option<wgpu::Error>>>,
}

/// A part of an operation.
pub(super) enum Step {
    Dispatch { pipeline: wgpu::ComputePipeline, bindings: Option<wgpu::BindGroup>, workgroups: [u32; 3] },
    Copy { from: wgpu::Buffer, to: wgpu::Buffer, bytes: u64 },
}

impl Context {
    pub fn new(adapter: &wgpu::Adapter) -> Result<Self, String> {
        let wanted = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::SHADER_F16;
        let features = adapter.features() & wanted;
        let limits = adapter.limits();
        let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
            label: None,
            required_features: features,
            required_limits: limits.clone(),
            ..Default::default()
        }))
        .map_err(|error| error.to_string())?;
        let errors = Arc::new(Mutex::new(None));
        let sink = Arc::clone(&errors);
        device.on_uncaptured_error(Arc::new(move |error| {
            sink.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }));
        let mut context = Self {
            f16: features.contains(wgpu::Features::SHADER_F16),
            timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            limits,
            device,
            queue,
            pipelines: HashMap::new(),
            errors,
        };
        for (source, entries) in MODULES {
            context.add_kernels(source, entries);
        }
        context.check("compiling the kernels").map_err(|error| error.to_string())?;
        Ok(context)
    }

    fn add_kernels(&mut self, source: &str, entries: &[&'static str]) {
        let elements = if self.f16 {
            "enable f16;\nalias Element = f16;\nalias Element4 = vec4<f16>;\n"
        } else {
            "alias Element = f32;\nalias Element4 = vec4<f32>;\n"
        };
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(format!("{elements}{source}").into()),
        });
        for entry in entries {
            let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(entry),
                layout: None,
                module: &module,
                entry_point: Some(entry),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            });
            self.pipelines.insert(entry, pipeline);
        }
    }

    /// How launches are timed.
    pub fn clock(&self) -> &'static str {
        if self.timestamps { "wgpu timestamp queries" } else { "host clock around a submission" }
    }

    /// The first error since the last call.
    pub fn check(&self, call: &str) -> Result<(), DeviceError> {
        match self.errors.lock().unwrap_or_else(PoisonError::into_inner).take() {
            None => Ok(()),
            Some(wgpu::Error::OutOfMemory { .. }) => Err(DeviceError::OutOfMemory { bytes: 0 }),
            Some(error) => Err(failed(call, error)),
        }
    }

    pub fn buffer(&self, bytes: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes.next_multiple_of(16),
            usage: usage | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    pub fn storage(&self, bytes: u64) -> wgpu::Buffer {
        self.buffer(bytes, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC)
    }

    /// A buffer with these words in it.
    pub fn words(&self, words: &[u32], usage: wgpu::BufferUsages) -> wgpu::Buffer {
        let buffer = self.buffer(words.len() as u64 * 4, usage);
        self.queue.write_buffer(&buffer, 0, &bytes_of(words));
        buffer
    }

    /// A dispatch of the kernel `entry`, its buffers in the order of their bindings from `first` on.
    pub fn dispatch(
        &self,
        entry: &str,
        params: &[u32],
        buffers: &[(u32, &wgpu::Buffer)],
        workgroups: [u32; 3],
    ) -> Step {
        let pipeline = self.pipelines[entry].clone();
        let params = self.words(params, wgpu::BufferUsages::UNIFORM);
        let mut entries = vec![(0, &params)];
        entries.extend_from_slice(buffers);
        let entries: Vec<wgpu::BindGroupEntry<'_>> = entries
            .iter()
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding: *binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let bindings = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        Step::Dispatch { pipeline, bindings: Some(bindings), workgroups }
    }

    /// A dispatch of a kernel without buffers.
    pub fn dispatch_nothing(&self) -> Step {
        Step::Dispatch { pipeline: self.pipelines["nothing"].clone(), bindings: None, workgroups: [1; 3] }
    }

    /// Workgroups of 256 threads for so many items; the kernels stride over more.
    pub fn workgroups_of(&self, items: u64) -> [u32; 3] {
        let most = u64::from(self.limits.max_compute_workgroups_per_dimension.min(1 << 15));
        [items.div_ceil(256).clamp(1, most) as u32, 1, 1]
    }

    /// Runs steps in order, waits, and returns the microseconds they took.
    pub fn submit<'a>(&self, steps: impl Iterator<Item = &'a Step>) -> Result<f64, DeviceError> {
        let timer = self.timestamps.then(|| {
            let set = self.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count: 2,
            });
            let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
            (set, self.buffer(16, usage))
        });
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let set = timer.as_ref().map(|(set, _)| set);
        // Copies stand outside of passes, so empty passes take the time before and after everything.
        stamp(&mut encoder, set, 0);
        encode(&mut encoder, steps);
        stamp(&mut encoder, set, 1);
        if let Some((set, resolved)) = &timer {
            encoder.resolve_query_set(set, 0..2, resolved, 0);
        }
        let commands = encoder.finish();
        let start = Instant::now();
        self.queue.submit([commands]);
        self.wait()?;
        let host_us = start.elapsed().as_secs_f64() * 1e6;
        self.check("running a kernel")?;
        let Some((_, resolved)) = timer else { return Ok(host_us) };
        let stamps = self.read(&resolved, 0, 16)?;
        let ticks = |at: usize| u64::from_le_bytes(stamps[at..at + 8].try_into().unwrap_or_default());
        let ticks = ticks(8).saturating_sub(ticks(0));
        Ok(ticks as f64 * f64::from(self.queue.get_timestamp_period()) / 1e3)
    }

    /// Reads bytes of a buffer, whose usage has COPY_SRC or MAP_READ.
    pub fn read(&self, buffer: &wgpu::Buffer, first: u64, bytes: usize) -> Result<Vec<u8>, DeviceError> {
        if buffer.usage().contains(wgpu::BufferUsages::MAP_READ) {
            return self.read_mapped(buffer, first, bytes);
        }
        // Copies are in multiples of 4 bytes.
        let from = first / 4 * 4;
        let length = (first + bytes as u64 - from).next_multiple_of(4);
        let staging = self.buffer(length, wgpu::BufferUsages::MAP_READ);
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(buffer, from, &staging, 0, length);
        self.queue.submit([encoder.finish()]);
        self.read_mapped(&staging, first - from, bytes)
    }

    fn read_mapped(&self, buffer: &wgpu::Buffer, first: u64, bytes: usize) -> Result<Vec<u8>, DeviceError> {
        buffer.map_async(wgpu::MapMode::Read, .., |_| {});
        self.wait()?;
        self.check("reading a result")?;
        let content = {
            let view = buffer.get_mapped_range(..).map_err(|error| failed("reading a result", error))?;
            view[first as usize..first as usize + bytes].to_vec()
        };
        buffer.unmap();
        Ok(content)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        let polled = self.device.poll(wgpu::PollType::wait_indefinitely());
        polled.map(|_| ()).map_err(|error| failed("waiting for the device", error))
    }
}

/// Writes the time into a query, by a pass that does nothing else.
fn stamp(encoder: &mut wgpu::CommandEncoder, set: Option<&wgpu::QuerySet>, index: u32) {
    let Some(query_set) = set else { return };
    let timestamp_writes = Some(wgpu::ComputePassTimestampWrites {
        query_set,
        beginning_of_pass_write_index: (index == 1).then_some(1),
        end_of_pass_write_index: (index == 0).then_some(0),
    });
    drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes }));
}

/// Dispatches that follow each other share a pass.
fn encode<'a>(encoder: &mut wgpu::CommandEncoder, steps: impl Iterator<Item = &'a Step>) {
    let mut steps = steps.peekable();
    while let Some(step) = steps.peek() {
        if let Step::Copy { from, to, bytes } = step {
            encoder.copy_buffer_to_buffer(from, 0, to, 0, *bytes);
            steps.next();
            continue;
        }
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        while let Some(Step::Dispatch { pipeline, bindings, workgroups: [x, y, z] }) =
            steps.next_if(|step| matches!(step, Step::Dispatch { .. }))
        {
            pass.set_pipeline(pipeline);
            if let Some(bindings) = bindings {
                pass.set_bind_group(0, bindings, &[]);
            }
            pass.dispatch_workgroups(*x, *y, *z);
        }
    }
}

pub(super) fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn failed(call: &str, error: impl std::fmt::Display) -> DeviceError {
    DeviceError::Call { call: call.to_owned(), message: error.to_string() }
}
