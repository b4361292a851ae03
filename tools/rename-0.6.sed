# Turns a program for Weber 0.4 into one for 0.6:   sed -E -i.old -f rename-0.6.sed *.c *.h
# (GNU sed; elsewhere: perl -p -i.old rename-0.6.sed).  CHANGELOG.md says what it cannot turn.

# makers of layers and rules: wb_X_with takes wb_X_options
s/\bwb_dense_(with|options)\b/wb_Dense_\1/g;
s/\bwb_conv_layer_with\b/wb_Conv_with/g;
s/\bwb_conv_options\b/wb_Conv_options/g;
s/\bwb_maxpool_layer_with\b/wb_MaxPool_with/g;
s/\bwb_meanpool_layer_with\b/wb_MeanPool_with/g;
s/\bwb_pool_options\b/wb_Pool_options/g;
s/\bwb_dropout_layer_with\b/wb_Dropout_with/g;
s/\bwb_dropout_options\b/wb_Dropout_options/g;
s/\bwb_batchnorm_(with|options)\b/wb_BatchNorm_\1/g;
s/\bwb_layernorm_(with|options)\b/wb_LayerNorm_\1/g;
s/\bwb_embedding_(with|options)\b/wb_Embedding_\1/g;
s/\bwb_attention_layer_with\b/wb_MultiHeadAttention_with/g;
s/\bwb_attention_options\b/wb_MultiHeadAttention_options/g;
s/\bwb_rnn_with\b/wb_RNN_with/g;
s/\bwb_lstm_with\b/wb_LSTM_with/g;
s/\bwb_gru_with\b/wb_GRU_with/g;
s/\bwb_rnn_cell_with\b/wb_RNNCell_with/g;
s/\bwb_lstm_cell_with\b/wb_LSTMCell_with/g;
s/\bwb_gru_cell_with\b/wb_GRUCell_with/g;
s/\bwb_recurrent_options\b/wb_Recurrent_options/g;
s/\bwb_descent_with\b/wb_Descent_with/g;
s/\bwb_momentum_with\b/wb_Momentum_with/g;
s/\bwb_adam_with\b/wb_Adam_with/g;
s/\bwb_adamw_with\b/wb_AdamW_with/g;
s/\bwb_weightdecay_with\b/wb_WeightDecay_with/g;
s/\bwb_clipgrad_with\b/wb_ClipGrad_with/g;
s/\bwb_clipnorm_with\b/wb_ClipNorm_with/g;
s/\bwb_rule_options\b/wb_Rule_options/g;

# operations: wb_x_with takes wb_x_options (after the lines for wb_conv_options and wb_pool_options)
s/\bwb_conv_settings\b/wb_conv_options/g;
s/\bwb_pool_settings\b/wb_pool_options/g;
s/\bwb_csv_options\b/wb_load_csv_options/g;
s/\bwb_loader_options\b/wb_dataloader_options/g;
s/\bwb_keep_options\b/wb_keep_checkpoint_options/g;

# lists of axes and lists of sizes have the same type
s/\bWB_AXES\b/WB_INTS/g;
s/\bwb_axes_of\b/wb_ints/g;
s/\bwb_axes\b/wb_ints/g;

# arguments in another order, where none is a call
s/\bwb_(concat|stack)_of\(([^(),]*), ([^(),]*), ([^(),]*)\)/wb_\1_array(\4, \2, \3)/g;
s/\bwb_splitobs\(([^,]*, [^(),]*), true, ([^(),]*, [^(),]*)\)/wb_splitobs(\1, \2, .shuffle = true)/g;
s/\bwb_splitobs\(([^,]*, [^(),]*), false, /wb_splitobs(\1, /g;

# functions that take an array, beside macros that take a list
s/\bwb_chain_of\b/wb_Chain_array/g;
s/\bwb_parallel_of\b/wb_Parallel_array/g;
s/\bwb_rule_chain_of\b/wb_OptimizerChain_array/g;
s/\bwb_(tuple|concat|stack|full|rand|randn)_of\b/wb_\1_array/g;
s/\bwb_(reshape|permute|expand)_to\b/wb_\1_array/g;
s/\bwb_at_index\b/wb_at_array/g;
s/\bwb_eval_all\b/wb_eval_array/g;
s/\bwb_call_many\b/wb_call_array/g;

# the macro and its function have the same name
s/\bwb_SkipConnection_of\b/wb_SkipConnection/g;
s/\bwb_withgradient_ctx\b/wb_withgradient/g;
s/\bwb_functional_part\b/wb_functional/g;

# the verb before the object, and one spelling
s/\bwb_checkpoint_(save|load|keep)\b/wb_\1_checkpoint/g;
s/\bwb_checkpoint_keep_with\b/wb_keep_checkpoint_with/g;
s/\bwb_checkpoint_(latest|best)\b/wb_load_\1_checkpoint/g;
s/\bwb_memory_estimate\b/wb_estimate_memory/g;
s/\bwb_svg_curves\b/wb_save_curves/g;
s/\bwb_read_idx\b/wb_load_idx_tensor/g;
s/\bwb_OptimiserChain\b/wb_OptimizerChain/g;
s/\bwb_initialiser\b/wb_initializer/g;
s/\bwb_normalise\b/wb_normalize/g;
s/\bWB_KEEP\b/WB_DTYPE_KEEP/g;

# functions that take any object
s/\bwb_show_object\b/wb_object_show/g;
s/\bwb_format_object\b/wb_object_format/g;
s/\bwb_struct_of\b/wb_struct_typed/g;
s/\bwb_struct_copy\b/wb_struct_get_typed/g;

# options where 0 means 0, and those that are true by default
s/\.no_(affine|bias|track_stats) = true\b/.\1 = false/g;
s/\.has_label = true, \.label = /.label = /g;
s/\.label = (-?\w+), \.has_label = true/.label = \1/g;
s/\.has_label = true\b/.label = 0/g;
s/\bWB_ZERO\b/0/g;
s/\bWB_NO_AHEAD\b/0/g;
s/\bWB_NO_PAD\b/0/g;
